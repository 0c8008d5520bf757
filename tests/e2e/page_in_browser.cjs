// Opens a page in a headless Chromium at two widths, light and dark, and prints what it saw as JSON.
// usage: node page_in_browser.cjs URL PICTURES
const puppeteer = require('puppeteer-core');

const look = () => {
  const wide = each => each.getBoundingClientRect().right > innerWidth + 1;
  const luminance = text => {
    const [r, g, b] = text.match(/[\d.]+/g).slice(0, 3).map(each => {
      const value = each / 255;
      return value <= 0.03928 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = luminance(getComputedStyle(document.body).backgroundColor);
  const contrast = each => {
    const [low, high] = [luminance(getComputedStyle(each).color), ground].sort((a, b) => a - b);
    return (high + 0.05) / (low + 0.05);
  };
  const texts = [...document.querySelectorAll('h1 span, p, td, th, small, figcaption, summary, .diff code')];
  return {
    page_width: document.documentElement.scrollWidth,
    too_wide: [...document.querySelectorAll('table, svg, pre, ol')].filter(wide).map(each => each.outerHTML.slice(0, 99)),
    cut: [...document.querySelectorAll('table, td, pre')].filter(each => each.scrollWidth > each.clientWidth + 1 && each.clientWidth)
      .map(each => each.outerHTML.slice(0, 99)),
    unnamed: [...document.querySelectorAll('svg')].filter(each => !each.getAttribute('aria-label')).length,
    unscoped: [...document.querySelectorAll('th')].filter(each => !each.scope).length,
    headings: document.querySelectorAll('h1').length,
    landmarks: document.querySelectorAll('main').length,
    language: document.documentElement.lang,
    background: ground,
    least_contrast: Math.min(...texts.map(contrast)),
    svgs: document.querySelectorAll('svg').length,
    diff: [...document.querySelectorAll('.diff')].map(each => [each.scrollWidth > each.clientWidth, getComputedStyle(each).overflowX]),
  };
};

(async () => {
  const [url, pictures] = process.argv.slice(2);
  let executablePath = process.env.AOTPIPE_CHROMIUM;
  let args = ['--no-sandbox'];
  if (!executablePath) {
    const chromium = require('@sparticuz/chromium').default || require('@sparticuz/chromium');
    executablePath = await chromium.executablePath();
    args = [...chromium.args, ...args];
  }
  const browser = await puppeteer.launch({args, executablePath, headless: 'shell'});
  const found = [];
  for (const width of [1280, 360]) for (const scheme of ['light', 'dark']) {
    const page = await browser.newPage();
    const said = [], asked = [];
    page.on('console', message => said.push(message.text()));
    page.on('pageerror', error => said.push(String(error)));
    page.on('request', request => { if (request.url() !== url && !request.url().startsWith('data:')) asked.push(request.url()); });
    await page.setViewport({width, height: 900});
    await page.emulateMediaFeatures([{name: 'prefers-color-scheme', value: scheme}]);
    await page.goto(url);
    for (const details of await page.$$('details')) await details.evaluate(each => { each.open = true; });
    found.push({width, scheme, said, asked, ...await page.evaluate(look)});
    await page.screenshot({path: `${pictures}/${width}-${scheme}.png`, fullPage: true});
    await page.close();
  }
  console.log(JSON.stringify(found));
  await browser.close();
})();
